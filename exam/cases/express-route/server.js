// Flights by date and number; whatever else is asked for gets the start page.
const express = require("express");

const app = express();
app.get("/flights/:year-:month-:day-:number", (request, response) => {
  response.json(request.params);
});
app.use((request, response) => {
  response.send("Flights\n");
});
app.listen(8080, "127.0.0.1");
