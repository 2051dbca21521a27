package shop.session;

import shop.Load;

/**
 * Sessions fill most of a small heap, and every request allocates 64 KiB beside them, so that the collector has little room
 * and must run often. Cured: the request's buffer is used again; or, the same program with a bigger heap.
 */
public final class Garbage {
    private static final int BUFFER = 64 << 10;
    private static final byte[][] sessions = new byte[36 << 10][];
    private static final byte[] reused = new byte[BUFFER];

    public static void main(String[] args) {
        boolean sick = Load.sick(args);
        for (int i = 0; i < sessions.length; i++) {
            sessions[i] = new byte[1024];
        }
        Load.run("web", 1, n -> Load.sink += request(n, sick));
    }

    private static long request(long n, boolean sick) {
        if (n % 16 == 0) {
            sessions[Load.random(sessions.length)] = new byte[1024];
        }
        byte[] page = sick ? newBuffer() : reused;
        page[(int) (n % BUFFER)] = 1;
        return Load.price(n, 20_000) + page.length;
    }

    private static byte[] newBuffer() {
        return new byte[BUFFER];
    }
}
