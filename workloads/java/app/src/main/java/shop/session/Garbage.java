package shop.session;

import shop.Load;

/**
 * 31 MiB of sessions live in a small heap, and every request allocates eight pages of 64 KiB that are needed for the
 * next twelve requests, so that the collector has little room, must run often, and copies what is still needed. Cured:
 * the pages are used again; or, the same program with a bigger heap. At 1000 requests a second the cured thread is
 * idle for most of its time, and its own work is no bottleneck.
 */
public final class Garbage {
    private static final int PAGE = 64 << 10;
    private static final int PAGES = 8;
    private static final byte[][] sessions = new byte[30 << 10][];
    private static final byte[][] inFlight = new byte[12 * PAGES][];

    public static void main(String[] args) {
        boolean sick = Load.sick(args);
        for (int i = 0; i < sessions.length; i++) {
            sessions[i] = new byte[1024];
        }
        for (int i = 0; i < inFlight.length; i++) {
            inFlight[i] = newPage();
        }
        Load.paced("web", 1, 1000, n -> Load.sink += request(n, sick));
    }

    private static long request(long n, boolean sick) {
        long price = 0;
        for (long page = n * PAGES; page < (n + 1) * PAGES; page++) {
            price += rendered(page, sick);
        }
        return price;
    }

    private static long rendered(long page, boolean sick) {
        if (page % 256 == 0) {
            sessions[Load.random(sessions.length)] = new byte[1024];
        }
        int slot = (int) (page % inFlight.length);
        if (sick) {
            inFlight[slot] = newPage();
        }
        inFlight[slot][(int) (page % PAGE)] = 1;
        return Load.price(page, 6000);
    }

    private static byte[] newPage() {
        return new byte[PAGE];
    }
}
