package shop.routes;

/** Adler-32 (RFC 1950), which divides after each block. */
final class Checksum {
    private static final int MODULUS = 65521;
    /** So many bytes can be added before a sum has more than 32 bits (zlib's NMAX). */
    static final int LONGEST_BLOCK = 5552;

    private final int block;

    Checksum(int block) {
        this.block = block;
    }

    long sum(byte[] bytes, int length) {
        long a = 1;
        long b = 0;
        for (int start = 0; start < length; start += block) {
            int end = Math.min(length, start + block);
            for (int i = start; i < end; i++) {
                a += bytes[i];
                b += a;
            }
            a %= MODULUS;
            b %= MODULUS;
        }
        return b << 16 | a;
    }
}
