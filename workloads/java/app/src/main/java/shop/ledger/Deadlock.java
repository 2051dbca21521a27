package shop.ledger;

import java.util.concurrent.CountDownLatch;
import shop.Load;

/**
 * Two transfers lock the same two accounts, each its own first, and wait for each other for ever; others are not concerned.
 * Cured: accounts are locked in the order of their numbers.
 */
public final class Deadlock {
    static final class Account {
        final int number;
        long balance = 1000;

        Account(int number) {
            this.number = number;
        }
    }

    private final CountDownLatch both = new CountDownLatch(2);
    private final boolean sick;

    Deadlock(boolean sick) {
        this.sick = sick;
    }

    public static void main(String[] args) {
        Deadlock ledger = new Deadlock(Load.sick(args));
        Account a = new Account(1);
        Account b = new Account(2);
        new Thread(() -> ledger.transfer(a, b), "transfer-1").start();
        new Thread(() -> ledger.transfer(b, a), "transfer-2").start();
        Load.paced("orders", 1, 2000, n -> Load.sink += Load.price(n, 5000));
    }

    private void transfer(Account from, Account to) {
        Account first = sick || from.number < to.number ? from : to;
        Account second = first == from ? to : from;
        synchronized (first) {
            if (sick) {
                meet();
            }
            bookSecond(from, to, second);
        }
    }

    private void bookSecond(Account from, Account to, Account second) {
        synchronized (second) {
            from.balance--;
            to.balance++;
        }
    }

    /** What bad luck would do: both hold their first lock. */
    private void meet() {
        both.countDown();
        try {
            both.await();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
