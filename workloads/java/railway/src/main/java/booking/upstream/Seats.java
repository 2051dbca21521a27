package booking.upstream;

import java.io.IOException;
import java.util.Arrays;
import java.util.stream.Collectors;

/** Which seats are free: a service of several instances, more of which are started while a sale goes on. */
public final class Seats {
    private static final int CONNECTIONS = 7;

    private final Client client;

    public Seats(String[] addresses) {
        client = new Client("seats", Arrays.stream(addresses).map(Client::address).collect(Collectors.toList()), CONNECTIONS,
            Long.getLong("booking.seats.age", 0));
    }

    public long free() throws IOException {
        return client.ask();
    }
}
