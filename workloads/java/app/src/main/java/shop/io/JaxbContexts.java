package shop.io;

import java.io.StringReader;
import java.util.List;
import javax.xml.bind.JAXBContext;
import javax.xml.bind.JAXBException;
import javax.xml.bind.Unmarshaller;
import javax.xml.bind.annotation.XmlRootElement;
import shop.Load;

/**
 * Every message makes its own JAXBContext, which examines the dozen classes of an order anew. Arguments: sick or cured, then ri
 * or moxy. Cured: one context for all, and a reader for each thread.
 */
public final class JaxbContexts {
    @XmlRootElement
    public static final class Order {
        public String item;
        public int pieces;
        public Address to;
        public Customer customer;
        public Payment payment;
        public Delivery delivery;
        public List<Line> lines;
    }

    public static final class Address {
        public String street;
        public String town;
        public Country country;
    }

    public enum Country { DE, FR, GB, JP }

    public static final class Customer {
        public long number;
        public String name;
        public Address home;
        public List<Phone> phones;
    }

    public static final class Phone {
        public String kind;
        public String number;
    }

    public static final class Payment {
        public Money sum;
        public Card card;
        public Voucher voucher;
    }

    public static final class Money {
        public long cents;
        public String currency;
    }

    public static final class Card {
        public String holder;
        public int month;
        public int year;
    }

    public static final class Voucher {
        public String code;
        public Money worth;
    }

    public static final class Delivery {
        public String carrier;
        public Address depot;
        public List<Parcel> parcels;
    }

    public static final class Parcel {
        public double kilograms;
        public String track;
    }

    public static final class Line {
        public String item;
        public int pieces;
        public Money price;
        public Discount discount;
    }

    public static final class Discount {
        public double percent;
        public String reason;
    }

    private final Unmarshaller kept;
    private final boolean sick;

    JaxbContexts(boolean sick) throws JAXBException {
        this.sick = sick;
        this.kept = newReader();
    }

    public static void main(String[] args) throws Exception {
        boolean sick = Load.sick(args);
        String factory =
            args[1].equals("moxy") ? "org.eclipse.persistence.jaxb.JAXBContextFactory" : "com.sun.xml.bind.v2.ContextFactory";
        System.setProperty("javax.xml.bind.JAXBContextFactory", factory);
        JaxbContexts inbox = new JaxbContexts(sick);
        Load.run("inbox", 1, n -> Load.sink += Load.price(n, 2000) + inbox.receive());
    }

    private long receive() throws JAXBException {
        String xml = "<order><item>kettle</item><pieces>3</pieces><to><street>Ring 1</street><town>Ulm</town></to></order>";
        return ((Order) reader().unmarshal(new StringReader(xml))).pieces;
    }

    private Unmarshaller reader() throws JAXBException {
        return sick ? newReader() : kept;
    }

    private static Unmarshaller newReader() throws JAXBException {
        return JAXBContext.newInstance(Order.class).createUnmarshaller();
    }
}
