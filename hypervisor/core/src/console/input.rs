//! Who gets what is typed on the hypervisor's consoles: the control domain, or the hypervisor as debug keys. Pure.

/// Bytes that wait for the control domain; more are dropped.
const ROOM: usize = 1024;
/// How often the switch key is typed to change over.
const TIMES: u8 = 3;

/// `conswitch=`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch {
    /// The letter that is typed with Ctrl; `None`: no key changes over.
    pub letter: Option<u8>,
    /// Input stays with the hypervisor when dom0 starts.
    pub stay: bool,
}

impl Default for Switch {
    /// Ctrl-a, and dom0 gets the input.
    fn default() -> Self {
        Self {
            letter: Some(b'a'),
            stay: false,
        }
    }
}

/// What a byte led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Typed {
    /// Nothing yet.
    Nothing,
    /// The control domain has input.
    Input,
    /// A debug key.
    Key(u8),
    /// Changed over; true if the hypervisor has the input now.
    Switched(bool),
}

/// The state.
pub struct Input {
    switch: Switch,
    ours: bool,
    /// Switch keys in a row so far.
    run: u8,
    ring: [u8; ROOM],
    start: usize,
    len: usize,
}

impl Input {
    /// Nothing typed yet.
    pub const fn new(switch: Switch) -> Self {
        Input {
            switch,
            ours: switch.stay,
            run: 0,
            ring: [0; ROOM],
            start: 0,
            len: 0,
        }
    }

    /// A byte was typed. The switch key is withheld until it is known whether it comes three times.
    pub fn byte(&mut self, byte: u8) -> Typed {
        let code = self.switch.letter.map(|l| l & 0x1f);
        if Some(byte) == code {
            self.run += 1;
            if self.run < TIMES {
                return Typed::Nothing;
            }
            self.run = 0;
            self.ours = !self.ours;
            return Typed::Switched(self.ours);
        }
        let withheld = core::mem::take(&mut self.run);
        if self.ours {
            return Typed::Key(byte);
        }
        for _ in 0..withheld {
            self.keep(code.unwrap_or(0));
        }
        self.keep(byte);
        Typed::Input
    }

    fn keep(&mut self, byte: u8) {
        if self.len < ROOM {
            self.ring[(self.start + self.len) % ROOM] = byte;
            self.len += 1;
        }
    }

    /// Takes bytes for the control domain; returns how many.
    pub fn take(&mut self, to: &mut [u8]) -> usize {
        let n = to.len().min(self.len);
        for slot in &mut to[..n] {
            *slot = self.ring[self.start];
            self.start = (self.start + 1) % ROOM;
        }
        self.len -= n;
        n
    }

    /// The switch key's name, such as `CTRL-a`, if there is one.
    pub fn letter(&self) -> Option<char> {
        self.switch.letter.map(char::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CTRL_A: u8 = 1;

    fn type_in(input: &mut Input, bytes: &[u8]) -> std::vec::Vec<Typed> {
        let typed = bytes.iter().map(|b| input.byte(*b));
        typed.filter(|t| *t != Typed::Nothing).collect()
    }

    fn taken(input: &mut Input) -> std::vec::Vec<u8> {
        let mut buffer = [0; 2 * ROOM];
        let n = input.take(&mut buffer);
        buffer[..n].to_vec()
    }

    #[test]
    fn three_switch_keys_change_over_and_back() {
        let mut i = Input::new(Switch::default());
        assert_eq!(
            type_in(&mut i, b"x\x01\x01\x01hq"),
            [
                Typed::Input,
                Typed::Switched(true),
                Typed::Key(b'h'),
                Typed::Key(b'q')
            ]
        );
        assert_eq!(taken(&mut i), b"x");
        assert_eq!(type_in(&mut i, &[CTRL_A; 3]), [Typed::Switched(false)]);
        assert_eq!(type_in(&mut i, b"y"), [Typed::Input]);
        assert_eq!(taken(&mut i), b"y");
    }

    #[test]
    fn fewer_are_passed_on() {
        let mut i = Input::new(Switch::default());
        type_in(&mut i, b"\x01\x01z\x01k");
        assert_eq!(taken(&mut i), b"\x01\x01z\x01k");
        // The hypervisor has no use for them.
        type_in(&mut i, &[CTRL_A; 3]);
        assert_eq!(type_in(&mut i, b"\x01\x01r"), [Typed::Key(b'r')]);
        assert_eq!(taken(&mut i), b"");
    }

    #[test]
    fn other_letters_none_and_staying() {
        let stay = Switch {
            letter: Some(b'b'),
            stay: true,
        };
        let mut i = Input::new(stay);
        assert_eq!(type_in(&mut i, b"\x01h"), [Typed::Key(1), Typed::Key(b'h')]);
        assert_eq!(type_in(&mut i, b"\x02\x02\x02"), [Typed::Switched(false)]);
        let mut i = Input::new(Switch {
            letter: None,
            stay: false,
        });
        type_in(&mut i, b"\x01\x01\x01");
        assert_eq!(taken(&mut i), b"\x01\x01\x01");
    }

    #[test]
    fn a_full_ring_drops_the_newest_and_wraps() {
        let mut i = Input::new(Switch::default());
        for n in 0..ROOM + 5 {
            i.byte(b'0' + (n % 10) as u8);
        }
        let mut first = [0; 10];
        assert_eq!(i.take(&mut first), 10);
        assert_eq!(&first, b"0123456789");
        type_in(&mut i, b"abc");
        let rest = taken(&mut i);
        assert_eq!(rest.len(), ROOM - 10 + 3);
        assert!(rest.ends_with(b"abc"));
    }
}
