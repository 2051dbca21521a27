// Answers what device a line of an access log comes from.
const serve = require("./serve");
const UAParser = require("ua-parser-js");

serve((n) => {
  const line = "Mozilla/5.0 (Linux; Android 9; Nexus" + " ".repeat(n) + "5) AppleWebKit/537.36 Mobile";
  return JSON.stringify(new UAParser(line).getDevice());
});
