// A server on 127.0.0.1:8080: each request is answered with what the program makes of ?n=.
const http = require("node:http");

module.exports = (answer) => {
  http
    .createServer(async (request, response) => {
      const n = Number(new URL(request.url, "http://localhost").searchParams.get("n") ?? 1);
      let text;
      try {
        text = await answer(n);
      } catch (e) {
        text = "refused: " + e.message;
      }
      response.end(text.slice(0, 200) + "\n");
    })
    .listen(8080, "127.0.0.1");
};
