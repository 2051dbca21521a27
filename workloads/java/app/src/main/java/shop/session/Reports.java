package shop.session;

import shop.Load;

/**
 * 60 MiB of sessions live in a heap of 256 MiB, and every request writes a report of 1.2 MiB into one array, which is needed
 * for the next two requests. G1 has regions of 1 MiB: each array is humongous and takes two regions of its own in the old
 * generation, which is soon as full as begins a collection. Cured: all reports are written into one buffer; or, the same
 * program with larger regions.
 */
public final class Reports {
    private static final int REPORT = 1_250_000;
    private static final byte[][] sessions = new byte[60 << 10][];
    private static final byte[][] recent = new byte[2][];
    private static final byte[] buffer = new byte[REPORT];

    public static void main(String[] args) {
        boolean sick = Load.sick(args);
        for (int i = 0; i < sessions.length; i++) {
            sessions[i] = new byte[1024];
        }
        Load.paced("web", 1, 4000, n -> Load.sink += request(n, sick ? new byte[REPORT] : buffer));
    }

    private static long request(long n, byte[] report) {
        write(report, n);
        recent[(int) (n % recent.length)] = report;
        return Load.price(n, 500);
    }

    private static void write(byte[] to, long n) {
        for (int at = 0; at < to.length; at += 64) {
            to[at] = (byte) n;
        }
    }
}
