package shop.stock;

import java.util.concurrent.locks.ReentrantLock;
import shop.Load;

/**
 * Three threads book into one warehouse, and price the order while they hold its lock. Arguments: sick or cured, then
 * synchronized or lock (of java.util.concurrent). Cured: they price it before they take the lock.
 */
public final class Monitors {
    private static final int POSITIONS = 5000;
    private final ReentrantLock lock = new ReentrantLock();
    private long booked;

    public static void main(String[] args) {
        boolean sick = Load.sick(args);
        boolean monitor = args[1].equals("synchronized");
        Monitors warehouse = new Monitors();
        Load.run("orders", 3, n -> Load.sink = warehouse.order(n, sick, monitor));
    }

    private long order(long n, boolean sick, boolean monitor) {
        if (sick) {
            return monitor ? bookHoldingMonitor(n) : bookHoldingLock(n);
        }
        long price = Load.price(n, POSITIONS);
        return monitor ? bookMonitor(price) : bookLock(price);
    }

    private synchronized long bookHoldingMonitor(long n) {
        booked += Load.price(n, POSITIONS);
        return booked;
    }

    private long bookHoldingLock(long n) {
        lock.lock();
        try {
            booked += Load.price(n, POSITIONS);
            return booked;
        } finally {
            lock.unlock();
        }
    }

    private synchronized long bookMonitor(long price) {
        booked += price;
        return booked;
    }

    private long bookLock(long price) {
        lock.lock();
        try {
            booked += price;
            return booked;
        } finally {
            lock.unlock();
        }
    }
}
