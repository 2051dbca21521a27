import assert from "node:assert/strict";
import { test } from "node:test";
import { gunzipSync } from "node:zlib";
import { collapsed, pprof, speedscope } from "../src/export.js";

const paths = [{ names: ["main", "a;b"], value: 300, count: 3 }, { names: ["main"], value: 5, count: 1 }];

test("collapsed lines have no semicolon of a name", () => assert.equal(collapsed(paths), "main;a,b 300\nmain 5\n"));

test("speedscope has each frame once", () => {
  const file = JSON.parse(speedscope(paths, "cpu", "ns"));
  assert.deepEqual(file.shared.frames, [{ name: "main" }, { name: "a;b" }]);
  assert.deepEqual(file.profiles[0].samples, [[0, 1], [0]]);
  assert.deepEqual(file.profiles[0].weights, [300, 5]);
  assert.equal(file.profiles[0].unit, "nanoseconds");
});

// The bytes of profile.proto, as `go tool pprof -raw` reads them too.
test("pprof has samples, leaf first, and names", async () => {
  const raw = [...gunzipSync(new Uint8Array(await (await pprof(paths, "cpu", "ns")).arrayBuffer()))];
  assert.deepEqual(raw.slice(0, 6), [0x0a, 4, 8, 1, 16, 2]); // ValueType: strings 1 and 2
  assert.deepEqual(raw.slice(6, 15), [0x12, 7, 8, 2, 8, 1, 16, 0xac, 2]); // locations 2 and 1, value 300
  const text = new TextDecoder().decode(Uint8Array.from(raw));
  for (const name of ["cpu", "nanoseconds", "main", "a;b"]) assert.ok(text.includes(name), name);
});
