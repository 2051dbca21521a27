package shop.routes;

import shop.Load;

/**
 * An integration framework: four threads take messages of 2000 lines, at 1000 messages a second, and put them into a queue. Behind
 * it consumers pass each through the steps of a route, write it as text in four currencies with a checksum of each one's head, and
 * send it: 1.5 ms until the answer is there. What may be wrong with it are properties:
 * <ul>
 * <li>outbox.consumers: 1, or more
 * <li>line.checks: interfaces (each step asks each line for two of them) or class
 * <li>checksum.block: after how many bytes the checksum divides: 1, or as many as it may, as the version before did
 * </ul>
 */
public final class Router {
    private static final int LINES = 2000;
    private static final double MESSAGES_A_SECOND = 1000;

    public static void main(String[] args) {
        Steps steps = Steps.of(System.getProperty("line.checks", "class"));
        Checksum checksum = new Checksum(Integer.getInteger("checksum.block", Checksum.LONGEST_BLOCK));
        Outbox outbox = new Outbox(Integer.getInteger("outbox.consumers", 8), new Endpoint(steps, checksum));
        Object[] lines = Line.some(LINES);
        Load.paced("route", 4, MESSAGES_A_SECOND, n -> outbox.put(lines));
    }
}
