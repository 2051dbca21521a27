package booking;

import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/** Threads of JDK 21, which the compiler may be too old to know. */
public final class VirtualThreads {
    private VirtualThreads() {
    }

    /** A virtual thread for each task. */
    public static ExecutorService each() {
        try {
            return (ExecutorService) Executors.class.getMethod("newVirtualThreadPerTaskExecutor").invoke(null);
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException("virtual threads need JDK 21", e);
        }
    }
}
