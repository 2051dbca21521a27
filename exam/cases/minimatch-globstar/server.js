// Answers whether a file of a tree is one of those that a user's pattern leaves out.
const serve = require("./serve");
const { minimatch } = require("minimatch");

const pattern = "**/a/".repeat(6) + "b";
serve((n) => String(minimatch("a/".repeat(n - 1) + "a", pattern)));
