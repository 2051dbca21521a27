package booking;

import booking.fares.Fares;
import booking.fares.Timetable;
import booking.upstream.Reservations;
import booking.upstream.Seats;
import booking.web.Bookings;
import booking.web.Front;
import booking.web.WarmUp;
import java.net.InetSocketAddress;
import java.util.concurrent.ExecutorService;

/**
 * A booking service: HTTP at the address of the first argument. For each booking it asks the seat service about each train, then the
 * reservation system, and prices the connections that come into question. Arguments: its own ip:port, the seat services
 * (ip:port,ip:port,…), and the reservation system (ip:port).
 *
 * <p>Properties: {@code booking.keepalive} (connections to what is behind it are kept), {@code booking.seats.age} (seconds after
 * which a kept connection is closed; 0: never), {@code booking.calls} ({@code threads} or {@code virtual}),
 * {@code booking.mapper} ({@code each} or {@code shared}), {@code booking.log} (a level of Logback), {@code booking.warmup}.
 */
public final class Server {
    private Server() {
    }

    public static void main(String[] args) throws Exception {
        Logs.configure(System.getProperty("booking.log", "WARN"));
        ExecutorService connections = VirtualThreads.each();
        Fares fares = new Fares();
        if (Boolean.getBoolean("booking.warmup")) {
            WarmUp.run(fares, connections);
        }
        Timetable.start();
        Bookings bookings = new Bookings(new Seats(args[1].split(",")), new Reservations(args[2]), fares);
        String[] address = args[0].split(":");
        new Front(bookings::book, connections).serve(Front.listen(new InetSocketAddress(address[0], Integer.parseInt(address[1]))));
    }
}
