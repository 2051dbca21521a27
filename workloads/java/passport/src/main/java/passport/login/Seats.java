package passport.login;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/** The seats that a visitor holds from an earlier visit: nearly always none. */
public final class Seats {
    private final Map<Long, Long> held = new ConcurrentHashMap<>();

    /** That no seat is held is an ordinary answer, and comes as an exception. */
    public long find(long seat) throws SeatNotHeld {
        Long visitor = held.get(seat);
        if (visitor == null) {
            throw new SeatNotHeld("seat " + seat);
        }
        return visitor;
    }

    /** The same, as a value: 0 is nobody. */
    public long findOrNobody(long seat) {
        Long visitor = held.get(seat);
        return visitor == null ? 0 : visitor;
    }

    /** Nobody holds the seat. */
    public static final class SeatNotHeld extends Exception {
        SeatNotHeld(String message) {
            super(message);
        }
    }
}
