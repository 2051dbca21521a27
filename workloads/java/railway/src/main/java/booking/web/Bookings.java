package booking.web;

import booking.fares.Fares;
import booking.upstream.Reservations;
import booking.upstream.Seats;
import java.io.IOException;
import java.util.concurrent.atomic.AtomicLong;

/** What is done for a booking. */
public final class Bookings {
    private static final int TRAINS = 4; // there and back, with a change each

    private final Seats seats;
    private final Reservations reservations;
    private final Fares fares;
    private final AtomicLong searches = new AtomicLong();

    public Bookings(Seats seats, Reservations reservations, Fares fares) {
        this.seats = seats;
        this.reservations = reservations;
        this.fares = fares;
    }

    public byte[] book() throws IOException, InterruptedException {
        long free = 0;
        for (int train = 0; train < TRAINS; train++) {
            free += seats.free();
        }
        long reserved = reservations.reserve();
        return fares.offers(searches.incrementAndGet() + free + reserved);
    }
}
