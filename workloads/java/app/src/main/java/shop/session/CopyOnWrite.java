package shop.session;

import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CopyOnWriteArrayList;
import shop.Load;

/** The last 5000 events are kept in a CopyOnWriteArrayList, which is written all the time. Cured: in a queue. */
public final class CopyOnWrite {
    private static final int KEPT = 5000;
    private final CopyOnWriteArrayList<Long> list = new CopyOnWriteArrayList<>();
    private final Queue<Long> queue = new ConcurrentLinkedQueue<>();

    public static void main(String[] args) {
        boolean sick = Load.sick(args);
        CopyOnWrite events = new CopyOnWrite();
        for (long i = 0; i < KEPT; i++) {
            events.list.add(i);
            events.queue.add(i);
        }
        Load.run("events", 1, n -> Load.sink += Load.price(n, 500) + (sick ? events.publish(n) : events.enqueue(n)));
    }

    private long publish(Long event) {
        list.add(event);
        return list.remove(0);
    }

    private long enqueue(Long event) {
        queue.add(event);
        return queue.remove();
    }
}
