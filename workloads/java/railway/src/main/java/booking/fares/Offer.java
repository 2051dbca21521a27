package booking.fares;

import java.util.ArrayList;
import java.util.List;

/** A connection with its price. */
public final class Offer {
    public String from;
    public String to;
    public String train;
    public int minutes;
    public long cents;
    public List<String> classes = new ArrayList<>();
    public List<Leg> legs = new ArrayList<>();

    public static final class Leg {
        public String station;
        public int platform;
        public int departs;

        public Leg() {
        }

        Leg(String station, int platform, int departs) {
            this.station = station;
            this.platform = platform;
            this.departs = departs;
        }
    }
}
