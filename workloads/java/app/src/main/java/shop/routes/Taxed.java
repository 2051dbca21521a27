package shop.routes;

/** What is taxed. */
interface Taxed {
    long tax();
}
