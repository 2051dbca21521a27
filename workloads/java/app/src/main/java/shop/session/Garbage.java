package shop.session;

import shop.Load;

/**
 * 31 MiB of sessions live in a small heap, and every request allocates a page of 64 KiB that is needed for the next hundred
 * requests, so that the collector has little room, must run often, and copies what is still needed. Cured: the pages are used
 * again; or, the same program with a bigger heap.
 */
public final class Garbage {
    private static final int PAGE = 64 << 10;
    private static final byte[][] sessions = new byte[30 << 10][];
    private static final byte[][] inFlight = new byte[100][];

    public static void main(String[] args) {
        boolean sick = Load.sick(args);
        for (int i = 0; i < sessions.length; i++) {
            sessions[i] = new byte[1024];
        }
        for (int i = 0; i < inFlight.length; i++) {
            inFlight[i] = newPage();
        }
        Load.run("web", 1, n -> Load.sink += request(n, sick));
    }

    private static long request(long n, boolean sick) {
        if (n % 256 == 0) {
            sessions[Load.random(sessions.length)] = new byte[1024];
        }
        int slot = (int) (n % inFlight.length);
        if (sick) {
            inFlight[slot] = newPage();
        }
        inFlight[slot][(int) (n % PAGE)] = 1;
        return Load.price(n, 6000);
    }

    private static byte[] newPage() {
        return new byte[PAGE];
    }
}
