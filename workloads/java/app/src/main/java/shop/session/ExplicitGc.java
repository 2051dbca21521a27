package shop.session;

import shop.Load;

/** A cache asks for a full collection ten times a second, "to keep memory low". Cured: it does not. */
public final class ExplicitGc {
    private static final byte[][] sessions = new byte[64 << 10][];

    public static void main(String[] args) {
        boolean sick = Load.sick(args);
        for (int i = 0; i < sessions.length; i++) {
            sessions[i] = new byte[1024];
        }
        Load.paced("cache", 1, 1000, n -> Load.sink += Load.price(n, 3000) + (sick && n % 100 == 0 ? cleanUp() : 0));
    }

    private static long cleanUp() {
        System.gc();
        return 1;
    }
}
