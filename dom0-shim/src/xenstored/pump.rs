//! Moves bytes between the clients' ends and the store, a bounded number for each client and turn, so that a client that
//! floods the store delays the others only so much.

use super::conn::{Fault, Moved};
use super::host::Host;
use super::machine::Machine;
use super::server::{ConnId, Server};
use xen_abi::io::xs_wire::{HEADER_LEN, limit};

/// Pieces read from one client in one turn. A request is two pieces at least.
const PIECES: usize = 32;

/// Serves one client. Returns whether it may have more right now.
pub fn serve(server: &mut Server, machine: &mut Machine, conn: ConnId) -> bool {
    let ring = server.ring_domain(conn);
    let Some(transport) = machine.transport(conn, ring) else {
        return false;
    };
    if transport.wants_reset() {
        server.reset(conn);
    }
    if server.is_dead(conn) {
        return end(server, machine, conn);
    }
    let mut buffer = [0; HEADER_LEN + limit::PAYLOAD_MAX as usize];
    let mut more = false;
    for piece in 0..PIECES {
        let wanted = server.wanted(conn).min(buffer.len());
        let Some(transport) = machine.transport(conn, ring).filter(|_| wanted > 0) else {
            break;
        };
        match transport.read(&mut buffer[..wanted]) {
            Moved::Bytes(n) => {
                if let Err(long) = server.receive(conn, &buffer[..n], machine) {
                    machine.log(&format!(
                        "{}: a message of {} bytes",
                        name(server, conn),
                        long.0
                    ));
                    return fail(server, machine, conn, Fault::TooLong);
                }
            }
            Moved::Nothing => break,
            Moved::Closed => return end(server, machine, conn),
            Moved::Broken(fault) => return fail(server, machine, conn, fault),
        }
        more = piece + 1 == PIECES;
    }
    loop {
        let bytes = server.outgoing(conn);
        let Some(transport) = machine.transport(conn, ring).filter(|_| !bytes.is_empty()) else {
            break;
        };
        match transport.write(bytes) {
            Moved::Bytes(n) => server.sent(conn, n),
            Moved::Nothing => return false,
            Moved::Closed => return end(server, machine, conn),
            Moved::Broken(fault) => return fail(server, machine, conn, fault),
        }
    }
    if server.is_dead(conn) {
        return end(server, machine, conn);
    }
    // After replies went out a client that was held back may be read again.
    more
}

/// Stops serving a client that broke the rules.
fn fail(server: &mut Server, machine: &mut Machine, conn: ConnId, fault: Fault) -> bool {
    machine.log(&format!(
        "{}: breaks the protocol ({fault:?}) and is not served any more",
        name(server, conn)
    ));
    machine.refuse(conn, server.ring_domain(conn), fault);
    server.ignore(conn);
    end(server, machine, conn)
}

/// Forgets a client over a socket. A domain's connection stays until the domain goes.
fn end(server: &mut Server, machine: &mut Machine, conn: ConnId) -> bool {
    if server.ring_domain(conn).is_none() {
        server.close(conn);
        machine.drop_socket(conn);
    }
    false
}

fn name(server: &Server, conn: ConnId) -> String {
    match server.ring_domain(conn) {
        Some(domid) => domid.to_string(),
        None => format!("connection {}", conn.0),
    }
}
