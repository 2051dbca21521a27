import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import org.apache.commons.lang3.SerializationUtils;

/** A basket's prices: a request gets a copy of the price list, and works on it. */
final class Main {
    /** A price that a discount may change. */
    static final class Price implements Serializable, Cloneable {
        String name;
        Long amount;
        List<String> labels = new ArrayList<>();

        Price copy() {
            Price p = new Price();
            p.name = name;
            p.amount = amount;
            p.labels.addAll(labels);
            return p;
        }
    }

    public static void main(String[] args) throws Exception {
        ArrayList<Price> list = new ArrayList<>();
        for (int i = 0; i < 6000; i++) {
            Price p = new Price();
            p.name = "product " + i;
            p.amount = 7L * i;
            p.labels.add("label " + i % 9);
            list.add(p);
        }
        boolean byHand = args[0].equals("1");
        Web.serve("/basket", 4, () -> {
            List<Price> mine;
            if (byHand) {
                mine = new ArrayList<>(list.size());
                for (Price p : list) {
                    mine.add(p.copy());
                }
            } else {
                mine = SerializationUtils.clone(list);
            }
            mine.get(3).amount -= 2;
            return mine.get(3).amount + "\n";
        });
    }
}
