package booking.fares;

/** By how much a ticket is cheaper in the sale. */
public final class Reduction {
    public String name;
    public int percent;
}
