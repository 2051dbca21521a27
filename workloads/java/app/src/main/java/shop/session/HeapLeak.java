package shop.session;

import java.util.ArrayList;
import java.util.List;
import shop.Load;

/** Beside a catalog of 100 MiB sessions are kept after their end, 8 MiB a second. Cured: the oldest goes when one comes. */
public final class HeapLeak {
    private static final int KEPT = 2000;
    private static final int SESSION = 8 << 10;
    private static final byte[][] catalog = new byte[(100 << 20) / SESSION][SESSION];
    private final List<byte[]> sessions = new ArrayList<>();
    private final boolean sick;

    HeapLeak(boolean sick) {
        this.sick = sick;
    }

    public static void main(String[] args) {
        HeapLeak web = new HeapLeak(Load.sick(args));
        Load.paced("web", 1, 1024, n -> Load.sink += Load.price(n, 3000) + web.login(n));
    }

    private long login(long n) {
        byte[] page = new byte[64 << 10]; // ordinary garbage, so that young collections happen
        page[(int) (n % page.length)] = 1;
        byte[] session = new byte[SESSION];
        session[0] = catalog[(int) (n % catalog.length)][0];
        if (sick || sessions.size() < KEPT) {
            sessions.add(session);
        } else {
            sessions.set((int) (n % KEPT), session);
        }
        return page.length;
    }
}
