package booking.web;

import booking.fares.Fares;
import booking.upstream.Reservations;
import booking.upstream.Seats;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/** Books on the loopback before anybody else can, with something that answers at once in the place of what is behind it. */
public final class WarmUp {
    private static final String STAND_IN = "127.0.0.1:9000";
    private static final String OPENING = "127.0.0.1:8081";
    private static final int CALLERS = 4;
    private static final int MOST_SECONDS = 15;
    /** Of compilation in a second: below a tenth of a CPU the requests do not feel it. */
    private static final long CALM_MILLIS = 100;
    private static final byte[] ANSWER = new byte[400];
    private static volatile boolean over;

    private WarmUp() {
    }

    /** Returns when the compilers have little left to do, after {@value MOST_SECONDS} s at most. */
    public static void run(Fares fares, ExecutorService connections) throws Exception {
        Reservations reservations = new Reservations(STAND_IN);
        Bookings rehearsed = new Bookings(new Seats(new String[] {STAND_IN}), reservations, fares);
        for (long search = 0; search < fares.round(); search++) {
            fares.offers(search);
        }
        ServerSocket standIn = Front.listen(new InetSocketAddress("127.0.0.1", 9000));
        ServerSocket front = Front.listen(new InetSocketAddress("127.0.0.1", 8081));
        ExecutorService callers = Executors.newFixedThreadPool(CALLERS + 2);
        callers.execute(() -> new Front(() -> ANSWER, connections).serve(standIn));
        callers.execute(() -> new Front(rehearsed::book, connections).serve(front));
        Seats passengers = new Seats(new String[] {OPENING}); // it is a client like another
        for (int i = 0; i < CALLERS; i++) {
            callers.execute(() -> call(passengers));
        }
        awaitCalm();
        over = true;
        standIn.close();
        front.close();
        callers.shutdown();
        reservations.close();
    }

    private static void awaitCalm() throws InterruptedException {
        long before = -1;
        for (int second = 0; second < MOST_SECONDS; second++) {
            Thread.sleep(1000);
            long now = ManagementFactory.getCompilationMXBean().getTotalCompilationTime();
            if (before >= 0 && now - before < CALM_MILLIS) {
                return;
            }
            before = now;
        }
    }

    private static void call(Seats booking) {
        try {
            while (!over) {
                booking.free();
            }
        } catch (IOException e) {
            if (!over) {
                throw new IllegalStateException("a booking before the opening failed", e);
            }
        }
    }
}
