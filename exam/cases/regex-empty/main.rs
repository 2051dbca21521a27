//! A service that checks patterns: /read?KIND=N has one of that kind and size.
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};

fn answer(line: &str) -> String {
    let query = line.split(['?', ' ']).nth(2).unwrap_or("");
    let (kind, size) = query.split_once('=').unwrap_or(("", "0"));
    let pattern = match kind {
        "empty" => format!("(?:){{{size}}}"),
        _ => format!("(?:abc){{{size}}}"),
    };
    match regex::Regex::new(&pattern) {
        Ok(_) => "valid\n".to_string(),
        Err(e) => format!("not valid: {e}\n"),
    }
}

fn serve(stream: TcpStream) -> std::io::Result<()> {
    let mut out = stream.try_clone()?;
    let mut lines = BufReader::new(stream).lines();
    while let Some(first) = lines.next() {
        let first = first?;
        for line in lines.by_ref() {
            if line?.is_empty() {
                break;
            }
        }
        let body = answer(&first);
        write!(out, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())?;
    }
    Ok(())
}

fn main() -> std::io::Result<()> {
    for stream in TcpListener::bind("127.0.0.1:8080")?.incoming() {
        let stream = stream?;
        std::thread::spawn(move || serve(stream));
    }
    Ok(())
}
