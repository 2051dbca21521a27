package shop.routes;

/** Adler-32 (RFC 1950), which divides after each block, written out sixteen bytes at a time, as zlib's DO16 does. */
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
            int i = start;
            for (; i + 16 <= end; i += 16) {
                a += bytes[i];
                b += a;
                a += bytes[i + 1];
                b += a;
                a += bytes[i + 2];
                b += a;
                a += bytes[i + 3];
                b += a;
                a += bytes[i + 4];
                b += a;
                a += bytes[i + 5];
                b += a;
                a += bytes[i + 6];
                b += a;
                a += bytes[i + 7];
                b += a;
                a += bytes[i + 8];
                b += a;
                a += bytes[i + 9];
                b += a;
                a += bytes[i + 10];
                b += a;
                a += bytes[i + 11];
                b += a;
                a += bytes[i + 12];
                b += a;
                a += bytes[i + 13];
                b += a;
                a += bytes[i + 14];
                b += a;
                a += bytes[i + 15];
                b += a;
            }
            for (; i < end; i++) {
                a += bytes[i];
                b += a;
            }
            a %= MODULUS;
            b %= MODULUS;
        }
        return b << 16 | a;
    }
}
