//! One fault in Rust: shop FAULT sick|cured PORT BACKEND. README.md beside it says what each is.
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::{Condvar, LazyLock, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

static SICK: LazyLock<bool> = LazyLock::new(|| argument(2) == "sick");

fn argument(n: usize) -> String {
    std::env::args().nth(n).expect("shop FAULT sick|cured PORT BACKEND")
}

// --- regex: the crate never backtracks; its fault is a pattern that is compiled for each use
const PATTERN: &str = r"^(\w+\s?)+;";
static NAMES: LazyLock<regex::Regex> = LazyLock::new(|| regex::Regex::new(PATTERN).unwrap());

#[inline(never)]
fn match_names() {
    let text = "one of the names ".repeat(8);
    for _ in 0..10 {
        if *SICK {
            regex::Regex::new(PATTERN).unwrap().is_match(&text);
        } else {
            NAMES.is_match(&text);
        }
    }
}

// --- lock
static SEATS: Mutex<u64> = Mutex::new(0);

#[inline(never)]
fn audit() {
    sleep(Duration::from_millis(5));
}

#[inline(never)]
fn book_seat() {
    if !*SICK {
        audit();
    }
    let mut booked = SEATS.lock().unwrap();
    *booked += 1;
    if *SICK {
        audit();
    }
}

// --- pool
static POOL: Mutex<Vec<TcpStream>> = Mutex::new(Vec::new());
static RETURNED: Condvar = Condvar::new();

fn open_pool() {
    for _ in 0..if *SICK { 2 } else { 16 } {
        POOL.lock().unwrap().push(TcpStream::connect(argument(4)).unwrap());
    }
}

#[inline(never)]
fn fetch_price() {
    let mut connection = RETURNED.wait_while(POOL.lock().unwrap(), |p| p.is_empty()).unwrap().pop().unwrap();
    connection.write_all(b"price\n").unwrap();
    connection.read(&mut [0; 64]).unwrap();
    POOL.lock().unwrap().push(connection);
    RETURNED.notify_one();
}

// --- sized
static JOBS: Mutex<VecDeque<std::sync::mpsc::Sender<u64>>> = Mutex::new(VecDeque::new());
static COME: Condvar = Condvar::new();

#[inline(never)]
fn digest_part() -> u64 {
    (0..900_000u64).fold(0, |sum, i| std::hint::black_box(sum * 31 + i) % 1_000_003)
}

fn work() {
    loop {
        let job = COME.wait_while(JOBS.lock().unwrap(), |j| j.is_empty()).unwrap().pop_front().unwrap();
        job.send(digest_part()).unwrap();
    }
}

fn open_workers() {
    let cpus: usize = std::env::var("HOST_CPUS").unwrap().parse().unwrap(); // as num_cpus counts, without the quota
    for _ in 0..if *SICK { 4 * cpus } else { 1 } {
        std::thread::spawn(work);
    }
}

fn digest_all() {
    let (send, receive) = std::sync::mpsc::channel();
    for _ in 0..8 {
        JOBS.lock().unwrap().push_back(send.clone());
    }
    COME.notify_all();
    for _ in 0..8 {
        receive.recv().unwrap();
    }
}

// --- loop
#[repr(C)]
struct PollFd {
    fd: i32,
    events: i16,
    revents: i16,
}

extern "C" {
    fn poll(fds: *mut PollFd, n: u64, timeout: i32) -> i32;
}

#[inline(never)]
fn retry_later(connection: &mut TcpStream, later: &mut VecDeque<(Instant, TcpStream)>) {
    if *SICK {
        sleep(Duration::from_millis(20));
        let _ = connection.write_all(b"ok\n");
    } else {
        later.push_back((Instant::now() + Duration::from_millis(20), connection.try_clone().unwrap()));
    }
}

fn run_loop(listener: TcpListener) {
    let mut connections: Vec<TcpStream> = Vec::new();
    let mut later: VecDeque<(Instant, TcpStream)> = VecDeque::new();
    loop {
        let mut fds = vec![PollFd { fd: listener.as_raw_fd(), events: 1, revents: 0 }];
        fds.extend(connections.iter().map(|c| PollFd { fd: c.as_raw_fd(), events: 1, revents: 0 }));
        unsafe { poll(fds.as_mut_ptr(), fds.len() as u64, if later.is_empty() { -1 } else { 5 }) };
        while later.front().is_some_and(|(due, _)| *due <= Instant::now()) {
            let _ = later.pop_front().unwrap().1.write_all(b"ok\n");
        }
        for i in (1..fds.len()).rev() {
            if fds[i].revents == 0 {
                continue;
            }
            if connections[i - 1].read(&mut [0; 64]).unwrap_or(0) == 0 {
                connections.remove(i - 1);
            } else {
                retry_later(&mut connections[i - 1], &mut later);
            }
        }
        if fds[0].revents != 0 {
            connections.push(listener.accept().unwrap().0);
        }
    }
}

fn serve(mut connection: TcpStream, handle: fn()) {
    while connection.read(&mut [0; 64]).unwrap_or(0) > 0 {
        handle();
        let _ = connection.write_all(b"ok\n");
    }
}

fn main() {
    let fault = argument(1);
    let listener = TcpListener::bind(format!("127.0.0.1:{}", argument(3))).unwrap();
    let handle: fn() = match fault.as_str() {
        "regex" => match_names,
        "lock" => book_seat,
        "pool" => fetch_price,
        "sized" => digest_all,
        _ => return run_loop(listener),
    };
    match fault.as_str() {
        "pool" => open_pool(),
        "sized" => open_workers(),
        _ => {}
    }
    for connection in listener.incoming() {
        let connection = connection.unwrap();
        std::thread::spawn(move || serve(connection, handle));
    }
}
