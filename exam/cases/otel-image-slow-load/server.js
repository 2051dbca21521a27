// A shop's front end: the page asks the provider of images for each of its products.
const express = require('express');
const axios = require('axios');

const app = express();
const IMAGES = 'http://127.0.0.1:8081/images/';

app.get('/product', async (req, res) => {
  const image = await axios.get(IMAGES + 'telescope.jpg');
  res.send(`<img alt="telescope" data-bytes="${String(image.data).length}">`);
});
app.listen(8080, '127.0.0.1');
