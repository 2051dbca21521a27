package booking.upstream;

import booking.VirtualThreads;
import java.io.IOException;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Semaphore;

/** The reservation system, forty years old: it takes its time, whoever asks. */
public final class Reservations {
    /** A thread for each call that is under way. */
    private static final int THREADS = 12;
    /** What the reservation system is known to stand. */
    private static final int AT_ONCE = 64;

    private final Client client;
    private final ExecutorService calls;
    private final Semaphore bound = new Semaphore(AT_ONCE);

    public Reservations(String address) {
        client = new Client("reservations", List.of(Client.address(address)), AT_ONCE, 0);
        boolean virtual = System.getProperty("booking.calls", "virtual").equals("virtual");
        calls = virtual ? VirtualThreads.each() : threads();
    }

    public long reserve() throws IOException, InterruptedException {
        try {
            return calls.submit(this::call).get();
        } catch (ExecutionException e) {
            throw new IOException(e.getCause());
        }
    }

    private long call() throws IOException {
        bound.acquireUninterruptibly();
        try {
            return client.ask();
        } finally {
            bound.release();
        }
    }

    /** Ends its threads: calls that are under way are answered. */
    public void close() {
        calls.shutdown();
    }

    private static ExecutorService threads() {
        int[] n = {0};
        return Executors.newFixedThreadPool(THREADS, work -> new Thread(work, "reservation-" + ++n[0]));
    }
}
