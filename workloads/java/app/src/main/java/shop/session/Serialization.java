package shop.session;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import shop.Load;

/** A session is copied by serializing it and reading it back. Cured: by a constructor. */
public final class Serialization {
    static final class Line implements Serializable {
        final String item;
        final int pieces;

        Line(String item, int pieces) {
            this.item = item;
            this.pieces = pieces;
        }
    }

    static final class Basket implements Serializable {
        final List<Line> lines = new ArrayList<>();

        Basket() {
        }

        Basket(Basket other) {
            for (Line line : other.lines) {
                lines.add(new Line(line.item, line.pieces));
            }
        }
    }

    public static void main(String[] args) {
        boolean sick = Load.sick(args);
        Basket basket = new Basket();
        for (int i = 0; i < 10; i++) {
            basket.lines.add(new Line("item-" + i, i));
        }
        Load.run("web", 1, n -> Load.sink += Load.price(n, 1000) + (sick ? cloneOf(basket) : new Basket(basket)).lines.size());
    }

    private static Basket cloneOf(Basket basket) throws IOException, ClassNotFoundException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        try (ObjectOutputStream out = new ObjectOutputStream(bytes)) {
            out.writeObject(basket);
        }
        try (ObjectInputStream in = new ObjectInputStream(new ByteArrayInputStream(bytes.toByteArray()))) {
            return (Basket) in.readObject();
        }
    }
}
