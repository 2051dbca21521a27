// Renders a comment: a paragraph and a link's definition.
const serve = require("./serve");
const { marked } = require("marked");

serve((n) => {
  const space = " ".repeat(n);
  return marked.parse(`See [x].\n\n[x]:${space}x ${space} x\n`);
});
