// Answers whether a package fits the range that is asked for. Each range is another one, as Range keeps those it knows.
const serve = require("./serve");
const semver = require("semver");

let patch = 0;
serve((n) => {
  const range = "1.2." + ++patch + " ".repeat(n) + "<1.3.0";
  return String(semver.satisfies("1.2.9", range));
});
