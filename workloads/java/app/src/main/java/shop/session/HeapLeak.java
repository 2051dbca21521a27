package shop.session;

import java.util.ArrayList;
import java.util.List;
import shop.Load;

/** Sessions are kept after their end, 8 MiB a second. Cured: the oldest goes when one comes. */
public final class HeapLeak {
    private static final int KEPT = 2000;
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
        byte[] session = new byte[8 << 10];
        if (sick || sessions.size() < KEPT) {
            sessions.add(session);
        } else {
            sessions.set((int) (n % KEPT), session);
        }
        return page.length;
    }
}
