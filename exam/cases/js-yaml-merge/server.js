// Reads a configuration whose sections build upon each other.
const serve = require("./serve");
const yaml = require("js-yaml");

serve((n) => {
  const lines = ["s0: &s0 {key0: 0}"];
  for (let i = 1; i < n; i++) {
    lines.push(`s${i}: &s${i} {<<: *s${i - 1}, key${i}: ${i}}`);
  }
  return Object.keys(yaml.load(lines.join("\n"))).join(" ");
});
