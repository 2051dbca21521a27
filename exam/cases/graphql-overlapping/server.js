// Checks and runs a query.
const serve = require("./serve");
const { buildSchema, graphql } = require("graphql");

const schema = buildSchema("type Query { hello: String }");
serve(async (n) => JSON.stringify(await graphql({ schema, source: "{ " + "hello ".repeat(n) + "}" })));
