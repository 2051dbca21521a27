package shop.gateway;

import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.locks.LockSupport;
import shop.Load;

/**
 * Four threads put orders into a queue of 100, from which one thread sends them on and waits 2 ms for each answer. Cured:
 * sixteen do.
 */
public final class BoundedQueue {
    private final BlockingQueue<Long> queue = new ArrayBlockingQueue<>(100);

    public static void main(String[] args) {
        int senders = Load.sick(args) ? 1 : 16;
        BoundedQueue outbox = new BoundedQueue();
        for (int i = 1; i <= senders; i++) {
            Thread sender = new Thread(outbox::sendAll, "sender-" + i);
            sender.setDaemon(true);
            sender.start();
        }
        // 2000 a second: four times what one sender manages, a quarter of what sixteen do.
        Load.paced("orders", 4, 2000, outbox::place);
    }

    private void place(long n) throws InterruptedException {
        queue.put(Load.price(n, 1000));
    }

    private void sendAll() {
        try {
            while (true) {
                send(queue.take());
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private void send(long order) {
        Load.sink += order;
        LockSupport.parkNanos(2_000_000);
    }
}
