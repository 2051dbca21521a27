// Opens a token that was sealed with a password. It is made here once, as somebody else made it.
const crypto = require("node:crypto");
const { CompactEncrypt, compactDecrypt } = require("jose");
const serve = require("./serve");

const password = Buffer.from("a password");
const tokens = new Map();

async function token(p2c) {
  if (!tokens.has(p2c)) {
    const sealed = new CompactEncrypt(Buffer.from("hello"))
      .setProtectedHeader({ alg: "PBES2-HS256+A128KW", enc: "A128GCM" })
      .setKeyManagementParameters({ p2c, p2s: crypto.randomBytes(16) })
      .encrypt(password);
    tokens.set(p2c, sealed);
  }
  return tokens.get(p2c);
}

serve(async (n) => {
  const { plaintext } = await compactDecrypt(await token(n), password, { keyManagementAlgorithms: ["PBES2-HS256+A128KW"] });
  return Buffer.from(plaintext).toString();
});
