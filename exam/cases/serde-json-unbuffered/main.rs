//! A catalogue: each request reads the products from their file. program FILE PRODUCTS file|buffered
use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::net::TcpListener;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let products: Vec<String> = (0..args[2].parse().unwrap())
        .map(|i: u32| format!(r#"{{"id": {i}, "name": "product {i}", "price": {}, "tags": ["new", "red"]}}"#, i * 7))
        .collect();
    std::fs::write(&args[1], format!("[{}]", products.join(", "))).unwrap();
    let listener = TcpListener::bind("127.0.0.1:8080").unwrap();
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else { continue };
        let (file, buffered) = (args[1].clone(), args[3] == "buffered");
        std::thread::spawn(move || {
            let mut head = [0; 4096];
            let _ = stream.read(&mut head);
            let body = sum(&file, buffered).to_string();
            let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
        });
    }
}

fn sum(file: &str, buffered: bool) -> u64 {
    let file = File::open(file).unwrap();
    let products: serde_json::Value = if buffered {
        serde_json::from_reader(BufReader::new(file)).unwrap()
    } else {
        serde_json::from_reader(file).unwrap()
    };
    products.as_array().unwrap().iter().filter_map(|p| p["price"].as_u64()).sum()
}
