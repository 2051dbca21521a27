package shop.stock;

import shop.Load;

/**
 * A counted loop of a tenth of a second has no safepoint poll with the parallel collector: whoever wants a pause waits for
 * it, and so does everybody else. Cured by -XX:+UseCountedLoopSafepoints -XX:LoopStripMiningIter=1000.
 */
public final class Safepoints {
    private static final int[] table = new int[1 << 16];

    public static void main(String[] args) {
        Thread report = new Thread(() -> {
            while (true) {
                Load.sink += report(30_000_000);
            }
        }, "report");
        report.setDaemon(true);
        report.start();
        Load.paced("web", 1, 2000, n -> Load.sink += Load.price(n, 1000) + newPage(n).length);
    }

    private static byte[] newPage(long n) {
        byte[] page = new byte[64 << 10];
        page[(int) (n & 0xFFFF)] = 1;
        return page;
    }

    private static long report(int turns) {
        int sum = 1;
        for (int i = 0; i < turns; i++) {
            sum += table[(sum ^ i) & 0xFFFF] + i;
        }
        return sum;
    }
}
