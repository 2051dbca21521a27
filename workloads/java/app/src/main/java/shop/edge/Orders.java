package shop.edge;

import io.netty.buffer.Unpooled;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.SimpleChannelInboundHandler;
import io.netty.handler.codec.http.DefaultFullHttpResponse;
import io.netty.handler.codec.http.FullHttpRequest;
import io.netty.handler.codec.http.HttpResponseStatus;
import io.netty.handler.codec.http.HttpVersion;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import shop.Load;

/** The route of orders: the filters of a request, the stock, the answer. */
final class Orders extends SimpleChannelInboundHandler<FullHttpRequest> {
    private static final int POSITIONS = 200;
    private static final String[] FILTERS = {
        "trace", "tenant", "authorize", "rate-limit", "rewrite-path", "add-header", "retry", "load-balance", "metrics", "send",
    };

    private final Stock stock;
    private final Keys keys;
    private final AccessLog log;

    Orders(Stock stock, Keys keys, AccessLog log) {
        this.stock = stock;
        this.keys = keys;
        this.log = log;
    }

    @Override
    public void channelActive(ChannelHandlerContext context) throws IOException {
        stock.open(context.channel());
    }

    @Override
    public void channelInactive(ChannelHandlerContext context) throws IOException {
        stock.close();
    }

    @Override
    protected void channelRead0(ChannelHandlerContext context, FullHttpRequest request) throws IOException {
        String path = request.uri();
        for (String filter : FILTERS) {
            log.step(filter, path);
        }
        long order = nameAll();
        stock.ask(pieces -> answer(context, order, pieces));
    }

    /** Prices the positions of the order and gives each its key. */
    private long nameAll() {
        long sum = 0;
        for (int i = 0; i < POSITIONS; i++) {
            sum += Load.price(i, 100) + keys.next().getMostSignificantBits();
        }
        return sum;
    }

    private static void answer(ChannelHandlerContext context, long order, long pieces) {
        byte[] text = ("order " + order + ", in stock: " + pieces).getBytes(StandardCharsets.US_ASCII);
        DefaultFullHttpResponse answer =
            new DefaultFullHttpResponse(HttpVersion.HTTP_1_1, HttpResponseStatus.OK, Unpooled.wrappedBuffer(text));
        answer.headers().set("content-length", text.length);
        context.writeAndFlush(answer);
    }
}
