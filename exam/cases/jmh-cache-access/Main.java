import org.openjdk.jmh.infra.Blackhole;
import org.openjdk.jmh.samples.JMHSample_37_CacheAccess;

/** A worker whose jobs walk the matrix of the sample, by column or by row. */
final class Main {
    public static void main(String[] args) throws Exception {
        JMHSample_37_CacheAccess sample = new JMHSample_37_CacheAccess();
        sample.setup();
        Blackhole hole = new Blackhole(
            "Today's password is swordfish. I understand instantiating Blackholes directly is dangerous.");
        Runnable job = args[0].equals("columns") ? () -> sample.colFirst(hole) : () -> sample.rowFirst(hole);
        Paced.run(job, Double.parseDouble(args[1]));
    }
}
