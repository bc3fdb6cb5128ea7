//! From what people set to the value of every symbol.

use std::cell::RefCell;

use crate::Problem;
use crate::dotconfig::{self, DotConfig};
use crate::expr::{Expr, number};
use crate::model::{Choice, Symbol, Tree, Type};

/// Every symbol's value.
#[derive(Clone, Debug)]
pub struct Config<'a> {
    /// The symbols.
    pub tree: &'a Tree,
    user: Vec<Option<String>>,
    values: Vec<String>,
}

impl<'a> Config<'a> {
    /// Works out all values. Lines of `set` that cannot be followed are problems, with the reason and what to do; the
    /// values are then as if the lines were not there.
    pub fn new(tree: &'a Tree, set: &DotConfig) -> (Self, Vec<Problem>) {
        let mut problems = Vec::new();
        let mut user = vec![None; tree.symbols.len()];
        let mut lines = vec![0; tree.symbols.len()];
        let problem = |line, text| Problem {
            file: set.file.clone(),
            line,
            text,
        };
        for a in &set.assignments {
            let Some(index) = tree.find(&a.name) else {
                let hint = similar(tree, &a.name);
                let hint = hint.map_or(String::new(), |s| format!("; did you mean CONFIG_{s}?"));
                problems.push(problem(
                    a.line,
                    format!("CONFIG_{}: there is no such symbol{hint}", a.name),
                ));
                continue;
            };
            match typed(&tree.symbols[index], &a.value) {
                Ok(value) => {
                    user[index] = Some(value);
                    lines[index] = a.line;
                }
                Err(text) => problems.push(problem(a.line, text)),
            }
        }
        let config = Self::solve(tree, user);
        for (index, wanted) in config.user.iter().enumerate() {
            let Some(wanted) = wanted else { continue };
            if config.values[index] != *wanted {
                problems.push(problem(
                    lines[index],
                    config.conflict(index, wanted, &lines),
                ));
            }
        }
        problems.extend(config.bad_selects());
        problems.sort_by_key(|p| p.line);
        (config, problems)
    }

    fn solve(tree: &'a Tree, user: Vec<Option<String>>) -> Self {
        let solver = Solver {
            tree,
            user: &user,
            memo: RefCell::new(vec![None; tree.symbols.len()]),
        };
        let values = (0..tree.symbols.len()).map(|i| solver.value(i)).collect();
        Self { tree, user, values }
    }

    /// The value of a symbol by index: `y`, `n`, a number or a text.
    pub fn value(&self, index: usize) -> &str {
        &self.values[index]
    }

    /// The value of a symbol by name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.tree.find(name).map(|i| self.value(i))
    }

    /// Whether an expression holds.
    pub fn is_true(&self, expr: &Expr) -> bool {
        expr.is_true(&mut |name| self.get(name).unwrap_or(name).to_owned())
    }

    /// Whether the symbol's dependencies are met, or another symbol selects it.
    pub fn available(&self, index: usize) -> bool {
        let s = &self.tree.symbols[index];
        let choice = s
            .choice
            .is_none_or(|c| self.is_true(&self.tree.choices[c].depends));
        choice && self.is_true(&s.depends) || s.ty == Type::Bool && self.value(index) == "y"
    }

    /// Whether people may set the symbol now.
    pub fn visible(&self, index: usize) -> bool {
        let s = &self.tree.symbols[index];
        let choice = s.choice.is_none_or(|c| self.choice_visible(c));
        let prompt = s.prompt.as_ref();
        choice && self.is_true(&s.depends) && prompt.is_some_and(|p| self.is_true(&p.condition))
    }

    /// Whether people may choose now.
    pub fn choice_visible(&self, index: usize) -> bool {
        let c = &self.tree.choices[index];
        let prompt = c.prompt.as_ref();
        self.is_true(&c.depends) && prompt.is_some_and(|p| self.is_true(&p.condition))
    }

    /// The range that holds for a number, if one does.
    pub fn range(&self, index: usize) -> Option<(i128, i128)> {
        let mut value = |name: &str| self.get(name).unwrap_or(name).to_owned();
        range(&self.tree.symbols[index], &mut value)
    }

    /// Every symbol whose dependencies are met, as a `.config` file.
    pub fn full(&self) -> String {
        dotconfig::full(self)
    }

    /// The fewest lines that lead here: a defconfig.
    pub fn minimal(&self) -> String {
        dotconfig::minimal(self)
    }

    /// What was set and could be followed, to be changed and given to [`Config::new`] again.
    pub fn settings(&self) -> DotConfig {
        let mut set = DotConfig::default();
        for (index, symbol) in self.tree.symbols.iter().enumerate() {
            if self.user[index].as_deref() == Some(self.value(index)) {
                set.set(&symbol.name, self.value(index));
            }
        }
        set
    }

    /// The settings with symbol `index` changed to `value`, and without those that contradict it. The error says why it
    /// cannot be changed so.
    pub fn changed(&self, index: usize, value: &str) -> Result<Self, String> {
        let symbol = &self.tree.symbols[index];
        let value = typed(symbol, value)?;
        let mut set = self.settings();
        if let Some(choice) = symbol.choice {
            for member in &self.tree.choices[choice].members {
                set.unset(&self.tree.symbols[*member].name);
            }
        }
        set.set(&symbol.name, &value);
        let (new, _) = Self::new(self.tree, &set);
        if new.value(index) != value {
            return Err(new.conflict(index, &value, &vec![0; self.tree.symbols.len()]));
        }
        // Once more, so that what the change made impossible is forgotten.
        Ok(Self::new(self.tree, &new.settings()).0)
    }

    /// Why symbol `index` is not `wanted`.
    fn conflict(&self, index: usize, wanted: &str, lines: &[usize]) -> String {
        let s = &self.tree.symbols[index];
        let what = match (s.ty, wanted) {
            (Type::Bool, "n") => format!("CONFIG_{} is not set", s.name),
            _ => format!("CONFIG_{}={wanted}", s.name),
        };
        let place = |i: usize| match lines[i] {
            0 => String::new(),
            line => format!(" (line {line})"),
        };
        if let Some(c) = s.choice.filter(|_| self.visible(index)) {
            let members = &self.tree.choices[c].members;
            let names = |list: &mut dyn Iterator<Item = &usize>| {
                let names: Vec<&str> = list.map(|m| &*self.tree.symbols[*m].name).collect();
                names.join(", CONFIG_")
            };
            let winner = members.iter().find(|m| self.value(**m) == "y");
            return match winner.filter(|w| **w != index) {
                Some(w) => format!(
                    "{what}, but of CONFIG_{} only one can be y, and CONFIG_{} is{}",
                    names(&mut members.iter()),
                    self.tree.symbols[*w].name,
                    place(*w)
                ),
                None => format!(
                    "{what}, but one of the choice must be y: set one of CONFIG_{}",
                    names(&mut members.iter().filter(|m| **m != index))
                ),
            };
        }
        let selector = self.selectors(index).next();
        if let (Some(by), "n") = (selector, wanted) {
            let by_name = &self.tree.symbols[by].name;
            return format!("{what}, but CONFIG_{by_name}=y{} selects it", place(by));
        }
        if !self.is_true(&s.depends) {
            return format!(
                "{what}, but it depends on {}",
                dotconfig::explain(self, &s.depends)
            );
        }
        if let Some(c) = s.choice.map(|c| &self.tree.choices[c])
            && !self.is_true(&c.depends)
        {
            return format!(
                "{what}, but its choice depends on {}",
                dotconfig::explain(self, &c.depends)
            );
        }
        if let Some((low, high)) = self.range(index)
            && number(wanted).is_some_and(|n| n < low || n > high)
        {
            return format!("{what} is outside of {low} to {high}");
        }
        let value = self.value(index);
        match &s.prompt {
            None => format!("{what}, but it cannot be set: it follows from others, and is {value}"),
            Some(p) => format!(
                "{what}, but it is {value} unless {}",
                dotconfig::explain(self, &p.condition)
            ),
        }
    }

    /// The symbols that select `index` now.
    fn selectors(&self, index: usize) -> impl Iterator<Item = usize> + '_ {
        let name = &self.tree.symbols[index].name;
        let all = self.tree.symbols.iter().enumerate();
        all.filter(move |(i, s)| {
            let mut selects = s.selects.iter();
            self.value(*i) == "y" && selects.any(|x| x.value == *name && self.is_true(&x.condition))
        })
        .map(|(i, _)| i)
    }

    /// Selected symbols whose own dependencies are not met: a mistake of the Kconfig file that this configuration shows.
    fn bad_selects(&self) -> Vec<Problem> {
        let mut found = Vec::new();
        for index in 0..self.tree.symbols.len() {
            let s = &self.tree.symbols[index];
            if self.is_true(&s.depends) {
                continue;
            }
            for by in self.selectors(index) {
                let by = &self.tree.symbols[by];
                found.push(Problem {
                    file: by.file.clone(),
                    line: by.line,
                    text: format!(
                        "{} selects {}, which depends on {}",
                        by.name,
                        s.name,
                        dotconfig::explain(self, &s.depends)
                    ),
                });
            }
        }
        found
    }
}

/// A value as the symbol's type wants it.
fn typed(s: &Symbol, value: &str) -> Result<String, String> {
    let name = &s.name;
    match s.ty {
        Type::Bool if matches!(value, "y" | "n") => Ok(value.to_owned()),
        Type::Bool if value == "m" => Err(format!("CONFIG_{name}=m: there are no modules here")),
        Type::Bool => Err(format!("CONFIG_{name}={value}: it must be y or n")),
        Type::Int => match number(value) {
            Some(n) if !value.contains('x') => Ok(n.to_string()),
            _ => Err(format!("CONFIG_{name}={value}: it must be a number")),
        },
        Type::Hex => match number(value) {
            Some(n) if n >= 0 => Ok(format!("{n:#x}")),
            _ => Err(format!(
                "CONFIG_{name}={value}: it must be a number like 0x1f"
            )),
        },
        Type::String => Ok(value.to_owned()),
    }
}

fn range(s: &Symbol, value: &mut dyn FnMut(&str) -> String) -> Option<(i128, i128)> {
    let range = s.ranges.iter().find(|r| r.condition.is_true(value))?;
    let (low, high) = &range.value;
    Some((number(&low.text(value))?, number(&high.text(value))?))
}

struct Solver<'a> {
    tree: &'a Tree,
    user: &'a [Option<String>],
    memo: RefCell<Vec<Option<String>>>,
}

impl Solver<'_> {
    fn value(&self, index: usize) -> String {
        if let Some(known) = &self.memo.borrow()[index] {
            return known.clone();
        }
        let s = &self.tree.symbols[index];
        let value = match (s.choice, s.ty) {
            (Some(choice), _) => yes_no(self.chosen(choice) == Some(index)),
            (None, Type::Bool) => yes_no(self.plain(s, index) == "y" || self.selected(&s.name)),
            (None, _) => self.plain(s, index),
        };
        self.memo.borrow_mut()[index] = Some(value.clone());
        value
    }

    fn by_name(&self, name: &str) -> String {
        self.tree
            .find(name)
            .map_or_else(|| name.to_owned(), |i| self.value(i))
    }

    fn is_true(&self, expr: &Expr) -> bool {
        expr.is_true(&mut |name| self.by_name(name))
    }

    fn visible(&self, s: &Symbol) -> bool {
        let prompt = s.prompt.as_ref();
        self.is_true(&s.depends) && prompt.is_some_and(|p| self.is_true(&p.condition))
    }

    /// What people set, else the default, else nothing.
    fn plain(&self, s: &Symbol, index: usize) -> String {
        let none = match s.ty {
            Type::Bool => "n",
            Type::String => "",
            Type::Int | Type::Hex => "0",
        };
        if !self.is_true(&s.depends) {
            return none.to_owned();
        }
        let mut value = |name: &str| self.by_name(name);
        let inside = |n: i128, range: Option<(i128, i128)>| {
            range.is_none_or(|(low, high)| (low..=high).contains(&n))
        };
        if let Some(user) = self.user[index].as_ref().filter(|_| self.visible(s)) {
            let fits = number(user).is_none_or(|n| inside(n, range(s, &mut value)));
            if fits || matches!(s.ty, Type::Bool | Type::String) {
                return user.clone();
            }
        }
        let default = s.defaults.iter().find(|d| self.is_true(&d.condition));
        let text = default.map_or_else(|| none.to_owned(), |d| d.value.text(&mut value));
        // A default outside of the range is moved to its end.
        match (s.ty, number(&text), range(s, &mut value)) {
            (Type::Int, Some(n), Some((low, high))) => n.max(low).min(high).to_string(),
            (Type::Hex, Some(n), Some((low, high))) => format!("{:#x}", n.max(low).min(high)),
            _ => text,
        }
    }

    fn selected(&self, name: &str) -> bool {
        let all = self.tree.symbols.iter().enumerate();
        all.flat_map(|(i, s)| s.selects.iter().map(move |x| (i, x)))
            .any(|(i, x)| x.value == name && self.value(i) == "y" && self.is_true(&x.condition))
    }

    /// The member of a choice that is `y`.
    fn chosen(&self, choice: usize) -> Option<usize> {
        let c = &self.tree.choices[choice];
        if !self.is_true(&c.depends) {
            return None;
        }
        let offered = |m: usize| self.visible(&self.tree.symbols[m]);
        let open = c
            .prompt
            .as_ref()
            .is_some_and(|p| self.is_true(&p.condition));
        let wish = |m: &usize| open && self.user[*m].as_deref() == Some("y") && offered(*m);
        if let Some(m) = c.members.iter().copied().find(wish) {
            return Some(m);
        }
        let defaults = c.defaults.iter().filter(|d| self.is_true(&d.condition));
        let named = defaults.filter_map(|d| match &d.value {
            Expr::Symbol(name) => self.tree.find(name),
            _ => None,
        });
        named.chain(c.members.iter().copied()).find(|m| offered(*m))
    }
}

fn yes_no(yes: bool) -> String {
    if yes { "y" } else { "n" }.to_owned()
}

/// A symbol whose name differs in few letters.
fn similar<'a>(tree: &'a Tree, name: &str) -> Option<&'a str> {
    let names = tree.symbols.iter().map(|s| s.name.as_str());
    names
        .map(|n| (distance(n.as_bytes(), name.as_bytes()), n))
        .filter(|(d, n)| *d <= 2.min(n.len() / 3))
        .min()
        .map(|(_, n)| n)
}

fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let change = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// What a Kconfig file must be, beyond its grammar: names that exist, types that fit, no circles.
pub fn check(tree: &Tree) -> Result<(), Problem> {
    let at = |s: &Symbol, text: String| Problem {
        file: s.file.clone(),
        line: s.line,
        text: format!("{}: {text}", s.name),
    };
    for s in &tree.symbols {
        for used in uses(s) {
            if tree.find(&used).is_none() {
                return Err(at(s, format!("it names {used}, which is not defined")));
            }
        }
        for select in &s.selects {
            let target = tree.find(&select.value).map(|i| &tree.symbols[i]);
            match target {
                None => {
                    return Err(at(
                        s,
                        format!("it selects {}, which is not defined", select.value),
                    ));
                }
                Some(t) if t.ty != Type::Bool || t.choice.is_some() => {
                    return Err(at(
                        s,
                        format!("it selects {}, which is not a plain bool", t.name),
                    ));
                }
                _ => {}
            }
        }
        let numeric = matches!(s.ty, Type::Int | Type::Hex);
        if numeric && !s.defaults.iter().any(|d| d.condition == Expr::True) {
            return Err(at(s, "a number needs a default without a condition".into()));
        }
        if !numeric && !s.ranges.is_empty() {
            return Err(at(s, "only numbers have a range".into()));
        }
        if s.choice.is_some() && (s.ty != Type::Bool || s.prompt.is_none()) {
            return Err(at(s, "a member of a choice is a bool with a prompt".into()));
        }
    }
    for c in &tree.choices {
        if let Some(used) = choice_uses(c).iter().find(|n| tree.find(n).is_none()) {
            return Err(Problem {
                file: c.file.clone(),
                line: c.line,
                text: format!("the choice names {used}, which is not defined"),
            });
        }
        if c.members.is_empty() || c.prompt.is_none() {
            return Err(Problem {
                file: c.file.clone(),
                line: c.line,
                text: "a choice needs a prompt and members".into(),
            });
        }
    }
    let mut state = vec![Visit::New; tree.symbols.len()];
    for index in 0..tree.symbols.len() {
        walk(tree, index, &mut state).map_err(|name| {
            at(
                &tree.symbols[index],
                format!("its value depends on itself, by way of {name}"),
            )
        })?;
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq)]
enum Visit {
    New,
    Open,
    Done,
}

/// Depth-first; the name of a symbol on a circle, if there is one.
fn walk(tree: &Tree, index: usize, state: &mut [Visit]) -> Result<(), String> {
    match state[index] {
        Visit::Done => return Ok(()),
        Visit::Open => return Err(tree.symbols[index].name.clone()),
        Visit::New => state[index] = Visit::Open,
    }
    let s = &tree.symbols[index];
    let mut needs = uses(s);
    if let Some(c) = s.choice.map(|c| &tree.choices[c]) {
        needs.extend(choice_uses(c));
        for m in &c.members {
            needs.extend(uses(&tree.symbols[*m]));
        }
    }
    for other in &tree.symbols {
        if other.selects.iter().any(|x| x.value == s.name) {
            needs.push(other.name.clone());
            for x in other.selects.iter().filter(|x| x.value == s.name) {
                x.condition.symbols(&mut |n| needs.push(n.to_owned()));
            }
        }
    }
    for name in needs {
        if let Some(next) = tree.find(&name) {
            walk(tree, next, state)?;
        }
    }
    state[index] = Visit::Done;
    Ok(())
}

/// The symbols that decide about a choice, without its members.
fn choice_uses(c: &Choice) -> Vec<String> {
    let mut names = Vec::new();
    let mut each = |name: &str| names.push(name.to_owned());
    c.depends.symbols(&mut each);
    if let Some(p) = &c.prompt {
        p.condition.symbols(&mut each);
    }
    for d in &c.defaults {
        d.condition.symbols(&mut each);
    }
    names
}

/// The symbols that the value of `s` is made from, without those that select it.
fn uses(s: &Symbol) -> Vec<String> {
    let mut names = Vec::new();
    let mut each = |name: &str| names.push(name.to_owned());
    s.depends.symbols(&mut each);
    if let Some(p) = &s.prompt {
        p.condition.symbols(&mut each);
    }
    for d in &s.defaults {
        d.value.symbols(&mut each);
        d.condition.symbols(&mut each);
    }
    for r in &s.ranges {
        r.value.0.symbols(&mut each);
        r.value.1.symbols(&mut each);
        r.condition.symbols(&mut each);
    }
    names
}
