// Reads a date of unknown form, as a form's field or a mail's header has it.
const serve = require("./serve");
const moment = require("moment");

moment.suppressDeprecationWarnings = true;
serve((n) => moment("Mon, 25 Dec 1995 " + "(".repeat(n)).format());
