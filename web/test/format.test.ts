import assert from "node:assert/strict";
import { test } from "node:test";
import { matcher, percent, quantity, shortName } from "../src/format.js";
import { Range } from "../src/range.js";

test("numbers read like those of the text report", () => {
  const cases: [number, string, string][] = [
    [0.42, "ratio", "42 %"], [0.0123, "ratio", "1.2 %"], [1, "ratio", "100 %"], [0, "ratio", "0 %"],
      [3.5e9, "ns", "3.5 s"], [2e6, "ns", "2 ms"], [1.5e-5, "s", "15 µs"],
    [1536, "B", "1.5 KiB"], [3 * 2 ** 30, "B", "3 GiB"], [12, "B", "12 B"], [1234567, "events", "1235k events"],
      [42, "sockets", "42 sockets"],
  ];
  for (const [n, unit, want] of cases) assert.equal(quantity(n, unit), want);
  assert.equal(percent(0.999), "99.9 %");
});

test("short names keep class and method", () => {
  assert.equal(shortName("java.util.HashMap.get"), "HashMap.get");
  assert.equal(shortName("shop.io.Finalizers$Stream.<init>"), "Finalizers$Stream.<init>");
  assert.equal(shortName("G1ParScan::copy(oopDesc*, bool)"), "G1ParScan::copy");
  assert.equal(shortName("tcp_sendmsg"), "tcp_sendmsg");
  assert.equal(shortName("crypto/tls.(*Conn).serverHandshake"), "tls.(*Conn).serverHandshake");
  assert.equal(shortName("sync.(*WaitGroup).Go.func1"), "sync.(*WaitGroup).Go.func1");
  assert.equal(shortName("github.com/a/b.Run"), "b.Run");
  assert.equal(shortName("std::map<int, a/b>::find(int) const"), "std::map<int, a/b>::find");
});

test("a search is a part of the name, or an expression between slashes", () => {
  assert.equal(matcher(" "), undefined);
  assert.equal(matcher("hashmap")?.("java.util.HashMap.get"), true);
  assert.equal(matcher("(")?.("a(b"), true);
  assert.equal(matcher("/^tcp_.*msg$/")?.("tcp_sendmsg"), true);
  assert.equal(matcher("/(/")?.("("), false);
});

test("a range stays within the window", () => {
  const r = new Range(10);
  let told = 0;
  r.listen(() => told++);
  r.set(8, 3);
  assert.deepEqual([r.from, r.to, r.all], [3, 8, false]);
  r.set(3, 8);
  r.set(-5, 50);
  assert.deepEqual([r.all, told], [true, 2]);
});
