// A web application that logs each request to its standard output with morgan.
const express = require('express');
const morgan = require('morgan');

const app = express();
app.use(morgan('combined'));
app.get('/', (req, res) => res.send('<li>entry</li>'.repeat(200)));
app.listen(8080, '127.0.0.1');
