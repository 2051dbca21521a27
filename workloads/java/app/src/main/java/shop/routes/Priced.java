package shop.routes;

/** What has a price. */
interface Priced {
    long price();
}
