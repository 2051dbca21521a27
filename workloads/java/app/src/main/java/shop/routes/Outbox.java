package shop.routes;

import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;

/** A queue of 100 messages, with its consumers. */
final class Outbox {
    private final BlockingQueue<Object[]> messages = new ArrayBlockingQueue<>(100);
    private final Endpoint endpoint;

    Outbox(int consumers, Endpoint endpoint) {
        this.endpoint = endpoint;
        for (int i = 1; i <= consumers; i++) {
            Thread consumer = new Thread(this::consume, "outbox-" + i);
            consumer.setDaemon(true);
            consumer.start();
        }
    }

    void put(Object[] message) throws InterruptedException {
        messages.put(message);
    }

    private void consume() {
        try {
            while (true) {
                endpoint.send(messages.take());
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
