package shop.audit;

import shop.Load;

/** An audit trail finds out by a stack trace who calls it. Cured: the caller says its name. */
public final class StackWalking {
    private final boolean sick;

    StackWalking(boolean sick) {
        this.sick = sick;
    }

    public static void main(String[] args) {
        StackWalking trail = new StackWalking(Load.sick(args));
        Load.run("orders", 1, n -> Load.sink += trail.handle(20, n));
    }

    private long handle(int depth, long n) {
        return depth > 0 ? handle(depth - 1, n) + 1 : placeOrder(n);
    }

    private long placeOrder(long n) {
        long price = Load.price(n, 300);
        return price + (sick ? recordWithCaller(price) : record("placeOrder", price));
    }

    private long recordWithCaller(long amount) {
        return record(new Throwable().getStackTrace()[1].getMethodName(), amount);
    }

    private long record(String caller, long amount) {
        return caller.length() + amount;
    }
}
