package passport.login;

import passport.login.Seats.SeatNotHeld;

/** What a visitor may buy. */
public final class Tickets {
    /** The seats of the block that a visitor looks at. */
    private static final int BLOCK = 450;
    /** The ordinary work of a request: prices, each some nanoseconds. */
    private static final int PRICES = 160_000;

    private final boolean exceptions = "exceptions".equals(System.getProperty("passport.seats"));
    private final Seats seats = new Seats();

    /** The prices of the block, less what the visitor holds there. */
    public long offer(long visitor) {
        long sum = 0;
        for (int i = 0; i < BLOCK; i++) {
            long seat = visitor * BLOCK + i;
            sum += exceptions ? heldOrFail(seat) : seats.findOrNobody(seat);
        }
        return sum + prices(visitor);
    }

    private long heldOrFail(long seat) {
        try {
            return seats.find(seat);
        } catch (SeatNotHeld e) {
            return 0;
        }
    }

    private static long prices(long visitor) {
        long sum = 0;
        long x = visitor * 0x9E3779B97F4A7C15L + 1;
        for (int i = 0; i < PRICES; i++) {
            x ^= x << 13;
            x ^= x >>> 7;
            x ^= x << 17;
            // As int: of a long the first compiler calls the runtime, which took 0.7 to 1.2 ms a request, from start to start.
            sum += (int) (x & 0xFFFF) % 997;
        }
        return sum;
    }
}
